// The program `swordfish`: parses the command line and hands over to one command.
#include <csignal>
#include <cstdio>
#include <exception>

#include "cli/common.h"

namespace {

int run(int argc, char** argv) {
  using namespace swordfish;
  std::signal(SIGPIPE, SIG_IGN);  // a closed reader ends in a failed write, not in a killed process
  CLI::App app{
      "Swordfish reads quantized LLM checkpoints (GPTQ, AWQ, compressed-tensors, NVFP4, MXFP4, GGUF), packs each weight once "
      "and multiplies it with 16-bit activations."};
  app.set_version_flag("--version", "swordfish " SWORDFISH_VERSION);
  app.require_subcommand(1);
  app.footer(
      "Exit codes: 0 done, 1 a check failed, 2 bad usage, 3 the input is refused, 4 this machine or build cannot do it.\n"
      "Example: swordfish verify model.gguf --m 1,16 --layers 'ffn_down'");
  int exit = cli::kDone;
  cli::add_inspect(app, exit);
  cli::add_verify(app, exit);
  cli::add_dequantize(app, exit);
  cli::add_pack(app, exit);
  cli::add_quantize(app, exit);
  cli::add_explain(app, exit);
  cli::add_bench(app, exit);
  cli::add_devices(app, exit);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? cli::kDone : cli::kUsage;
  }
  if (std::fflush(stdout) != 0 || std::ferror(stdout)) return cli::fail({Code::io, "writing the results to stdout failed"}, true);
  return exit;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::bad_alloc&) {
    std::fputs("swordfish: out of memory\n", stderr);
    return swordfish::cli::kUnavailable;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "swordfish: %s\n", e.what());
    return swordfish::cli::kCheckFailed;
  }
}
