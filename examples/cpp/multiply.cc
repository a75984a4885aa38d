// The same as c/multiply.c through the C++ API. usage: multiply_cpp CHECKPOINT
#include <swordfish/checkpoint.h>
#include <swordfish/gemm.h>
#include <swordfish/pack.h>

#include <cstdint>
#include <iostream>
#include <vector>

namespace sf = swordfish;

static int fail(const sf::Status& status) {
  std::cerr << status.message() << "\n";
  return 1;
}

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: multiply_cpp CHECKPOINT\n";
    return 2;
  }
  const auto checkpoint = sf::Checkpoint::open(argv[1]);
  if (!checkpoint.ok()) return fail(checkpoint.status());
  std::size_t layer = 0;
  while (layer < checkpoint->layers().size() && checkpoint->layers()[layer].experts != 0) ++layer;
  const auto tensor = checkpoint->load(layer);
  if (!tensor.ok()) return fail(tensor.status());
  const auto weight = sf::pack(*tensor);
  if (!weight.ok()) return fail(weight.status());

  sf::Context context;
  const sf::Problem problem{&weight->view, 1, sf::DType::bf16, sf::DType::f32, false, {}, context.threads()};
  const auto plan = sf::plan(problem);
  if (!plan.ok()) return fail(plan.status());

  const std::vector<std::uint16_t> x(static_cast<std::size_t>(tensor->k), 0x3f80);  // 1.0 in bf16
  std::vector<float> y(static_cast<std::size_t>(tensor->n));
  sf::Buffer workspace(plan->workspace);
  if (const auto s = sf::workspace_init(*plan, {}, workspace.data(), workspace.size()); !s.ok()) return fail(s);
  const sf::RunArgs args{x.data(), tensor->k, y.data(), tensor->n, nullptr, workspace.data(), workspace.size(), nullptr};
  if (const auto s = sf::run(context, problem, *plan, args); !s.ok()) return fail(s);
  std::cout << tensor->name << " [" << tensor->n << ", " << tensor->k << "] by " << plan->kernel_name << ": y[0] = " << y[0]
            << "\n";
  return 0;
}
