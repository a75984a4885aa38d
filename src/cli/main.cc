// The program `swordfish`: parses the command line and hands over to one command.
#include <fcntl.h>

#include <csignal>
#include <cstdio>
#include <exception>
#include <system_error>

#include "cli/common.h"

namespace {

// A program may be started without stdin, stdout or stderr. Their numbers must not go to the files that it opens, or results and
// messages would be written into them; opened for reading, a write to them still fails.
void reserve_standard_streams() {
  for (int fd = 0; fd <= 2; ++fd)
    if (fcntl(fd, F_GETFD) == -1) (void)open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
}

int run(int argc, char** argv) {
  using namespace swordfish;
  std::signal(SIGPIPE, SIG_IGN);  // a closed reader ends in a failed write, not in a killed process
  std::signal(SIGXFSZ, SIG_IGN);  // and so does a limit on the size of files
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
  cli::add_load(app, exit);
  cli::add_synth(app, exit);
  try {
    app.parse(argc, argv);
  } catch (const CLI::RequiredError& e) {
    if (argc > 1 && argv[1][0] != '-' && app.get_subcommands().empty())
      return cli::fail_usage("there is no command '" + std::string(argv[1]) + "'; see swordfish --help");
    return app.exit(e) == 0 ? cli::kDone : cli::kUsage;
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? cli::kDone : cli::kUsage;
  }
  if (std::fflush(stdout) != 0 || std::ferror(stdout)) return cli::fail({Code::io, "writing the results to stdout failed"}, true);
  return exit;
}

}  // namespace

int main(int argc, char** argv) {
  reserve_standard_streams();
  try {
    return run(argc, argv);
  } catch (const std::bad_alloc&) {
    std::fputs("swordfish: out of memory\n", stderr);
    return swordfish::cli::kUnavailable;
  } catch (const std::system_error& e) {  // printing results failed: a closed pipe, a full disk
    std::fprintf(stderr, "swordfish: %s\n", e.what());
    return swordfish::cli::kUnavailable;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "swordfish: %s\n", e.what());
    return swordfish::cli::kCheckFailed;
  }
}
