// hvdtrace merges and sums up the timelines of a job's ranks.
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <hvd/core/version.hpp>

#include "commands.hpp"
#include "trace_file.hpp"

namespace {

int run(int argc, char** argv) {
  CLI::App app{"Merges and sums up the timelines of a job's ranks.", "hvdtrace"};
  app.set_version_flag("--version", fmt::format("hvdtrace {}", hvd::version()));
  app.require_subcommand(1);
  std::string out;
  std::vector<std::string> files;
  CLI::App& merge = *app.add_subcommand("merge", "Write one trace of all ranks, on one clock");
  merge.add_option("OUT", out, "The file to write")->required();
  merge.add_option("FILE", files, "One file per rank")->required();
  CLI::App& summary = *app.add_subcommand("summary", "Print how long each phase took");
  summary.add_option("FILE", files, "One file per rank, or a merged one")->required();
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {
    return app.exit(asked);  // --help, --version
  } catch (const CLI::ParseError& error) {
    throw hvd::trace::TraceError(hvd::trace::kExitUsage, error.what());
  }
  if (merge.parsed()) {
    hvd::trace::merge(out, files);
  } else {
    fmt::print("{}", hvd::trace::summarize(files));
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const hvd::trace::TraceError& error) {
    fmt::print(stderr, "hvdtrace: {}\n", error.what());
    return error.code();
  } catch (const std::exception& error) {
    fmt::print(stderr, "hvdtrace: {}\n", error.what());
    return 70;
  }
}
