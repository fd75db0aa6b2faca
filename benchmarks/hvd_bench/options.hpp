// Parses the command line of hvd_bench.
#pragma once

#include <chrono>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>

#include <hvd/core/types.hpp>

namespace hvd::bench {

struct Options {
  bool negotiation = false;  ///< not a collective: measure negotiation
  bool startup = false;      ///< not a collective: time `init` and the first allreduce
  bool load_only = false;    ///< with `startup`: end as soon as the process is loaded
  OpKind kind = OpKind::allreduce;
  bool sendrecv = false;       ///< messages, which are broadcasts in pairs of ranks; so is `kind`
  std::size_t begin = 4;       ///< bytes
  std::size_t end = 64 << 20;  ///< bytes, included
  std::size_t factor = 4;
  DType dtype = DType::f32;
  ReduceOp op = ReduceOp::sum;
  int root = 0;
  int iterations = 0;  ///< 0: as many as fit into `budget`
  int warmup = 3;
  std::chrono::milliseconds budget{500};
  bool check = true;
  bool arena = false;   ///< buffers lie in the memory that the ranks of a host share
  bool engine = false;  ///< an allreduce of the engine alone
  bool cuda = false;    ///< buffers lie in the memory of the rank's GPU
  std::string json;     ///< file, empty: none
};

[[nodiscard]] inline std::string_view operation_of(const Options& options) {
  return options.sendrecv ? "sendrecv" : to_string(options.kind);
}

/// The command line is wrong; the text says why.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// `help` is set when the user asked only for help, which is then already printed.
struct CommandLine {
  Options options;
  bool help = false;
};

/// Throws UsageError.
[[nodiscard]] CommandLine parse_command_line(int argc, const char* const* argv);

/// Parses "256", "4K", "16M", "1G", also with a trailing B or iB, as powers of 1024. Throws
/// UsageError.
[[nodiscard]] std::size_t parse_size(const std::string& text);

}  // namespace hvd::bench
