// A file of packed weights: opened, every layer loaded and unpacked, and one product run through it, since kernels trust the view.
#include <algorithm>

#include "fuzz.h"
#include "swordfish/gemm.h"
#include "swordfish/pack.h"

using namespace swordfish;

namespace {

void run_product(const PackedWeight& weight) {
  static Context context(1);
  const PackedView& view = weight.view;
  const Problem problem{&view, 1, DType::bf16, DType::f32, false, {}, 1};
  const Result<Plan> chosen = plan(problem);
  if (!chosen.ok()) return;
  const std::vector<std::uint16_t> x(static_cast<std::size_t>(view.k), 0x3f80);
  std::vector<float> y(static_cast<std::size_t>(view.n));
  Buffer workspace(chosen->workspace);
  if (!workspace_init(*chosen, {}, workspace.data(), workspace.size()).ok()) return;
  const RunArgs args{x.data(), view.k, y.data(), view.n, nullptr, workspace.data(), workspace.size(), nullptr};
  fuzz::check(run(context, problem, *chosen, args).ok(), "a loaded weight can be run");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::MemoryFolder folder;
  const std::string path = folder.path("packed.safetensors");
  folder.write("packed.safetensors", fuzz::text(data, size));

  const fuzz::AllocationGuard guard(size);
  const Result<PackedFile> file = PackedFile::open(path);
  if (!file.ok()) {
    fuzz::check(!file.status().message().empty(), "a refusal says why");
    return 0;
  }
  for (std::size_t layer = 0; layer < file->layers().size(); ++layer) {
    const std::int64_t experts = std::clamp<std::int64_t>(file->layers()[layer].experts, 1, 2);
    for (std::int64_t expert = 0; expert < experts; ++expert) {
      const Result<PackedWeight> weight = file->load(layer, expert);
      (void)file->load_bias(layer, expert).ok();
      if (!weight.ok()) continue;
      for (std::int64_t part = 0; part < weight->view.n_parts; ++part) (void)unpack(weight->view, part).ok();
      if (weight->view.layout == Layout::mma64_1) run_product(*weight);
    }
  }
  return 0;
}
