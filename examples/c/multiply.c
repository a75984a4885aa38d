/* Packs the first plain layer of a checkpoint and multiplies it with x = 1, 1, 1, ...: the C ABI from open to run.
 * usage: multiply_c CHECKPOINT */
#include <stdio.h>
#include <stdlib.h>
#include <swordfish/swordfish.h>

#define CHECK(call)                                        \
  do {                                                     \
    if ((call) != SF_OK) {                                 \
      fprintf(stderr, "%s: %s\n", #call, sf_last_error()); \
      return 1;                                            \
    }                                                      \
  } while (0)

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: multiply_c CHECKPOINT\n");
    return 2;
  }
  sf_checkpoint* checkpoint = NULL;
  CHECK(sf_checkpoint_open(argv[1], NULL, &checkpoint));

  sf_layer_info info = {sizeof info};
  size_t layer = 0;
  for (; layer < sf_checkpoint_layer_count(checkpoint); ++layer) {
    CHECK(sf_checkpoint_layer(checkpoint, layer, &info));
    if (info.experts == 0) break;
  }
  sf_weight* weight = NULL;
  CHECK(sf_weight_pack(checkpoint, &layer, 1, 0, 0, &weight));

  sf_context* context = NULL;
  CHECK(sf_context_create(0, &context));
  sf_problem problem = {sizeof problem};
  problem.m = 1;
  problem.x_type = SF_BF16;
  problem.y_type = SF_F32;
  problem.device = SF_CPU;
  problem.threads = sf_context_threads(context);
  sf_plan plan = {sizeof plan};
  CHECK(sf_plan_make(weight, &problem, &plan));

  uint16_t* x = malloc((size_t)info.k * sizeof *x);
  float* y = malloc((size_t)info.n * sizeof *y);
  size_t scratch = (plan.workspace + 63) / 64 * 64;
  void* workspace = aligned_alloc(64, scratch ? scratch : 64);
  if (!x || !y || !workspace) return 1;
  for (int64_t i = 0; i < info.k; ++i) x[i] = 0x3f80; /* 1.0 in bf16 */
  CHECK(sf_workspace_init(&plan, workspace, scratch, NULL));

  sf_run_args args = {sizeof args};
  args.x = x;
  args.ldx = info.k;
  args.y = y;
  args.ldy = info.n;
  args.workspace = workspace;
  args.workspace_size = scratch;
  CHECK(sf_run(context, weight, &plan, &args));

  printf("%s %s [%lld, %lld] by %s: y[0] = %.6g\n", sf_version(), info.name, (long long)info.n, (long long)info.k, plan.kernel,
         y[0]);
  free(workspace);
  free(y);
  free(x);
  sf_context_free(context);
  sf_weight_free(weight);
  sf_checkpoint_free(checkpoint);
  return 0;
}
