// store_server --listen tcp:HOST:0 --job ID --secret-file F serves the store of ranks that were
// started by hand on several hosts. It prints the address for HVD_STORE and serves until its
// standard input ends. The exit status is 0, 1 when it cannot listen, or 64 for a wrong command
// line.
#include <cstdio>
#include <exception>
#include <string>

#include <CLI/CLI.hpp>
#include <unistd.h>

#include <hvd/core/internal/event_loop.hpp>
#include <hvd/core/internal/secret.hpp>
#include <hvd/core/internal/store_server.hpp>

int main(int argc, char** argv) {
  constexpr int kUsage = 64;
  std::string listen = "tcp:127.0.0.1:0";
  std::string job;
  std::string secret_file;
  CLI::App app("Serves the store in which ranks meet.", "store_server");
  app.add_option("--listen", listen, "tcp:HOST:PORT, port 0 for a free one");
  app.add_option("--job", job, "HVD_JOB_ID of the ranks")->required();
  app.add_option("--secret-file", secret_file, "HVD_SECRET_FILE of the ranks")->required();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  }
  try {
    hvd::Identity identity;
    identity.job_id = job;
    identity.rank = -1;
    identity.secret = hvd::Secret::from_file(secret_file);
    hvd::EventLoop loop;
    const hvd::StoreServer server(loop, listen, identity);
    std::printf("%s\n", server.address().c_str());
    std::fflush(stdout);
    char ignored[64];
    while (::read(STDIN_FILENO, ignored, sizeof ignored) > 0) {
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "store_server: %s\n", error.what());
    return 1;
  }
}
