#include "options.hpp"

#include <cctype>
#include <charconv>
#include <iostream>
#include <limits>
#include <string_view>

#include <CLI/CLI.hpp>

namespace hvd::bench {
namespace {

template <class Enum>
Enum parse_name(const std::string& text, int count, const char* option) {
  std::string known;
  for (int i = 0; i < count; ++i) {
    const auto value = static_cast<Enum>(i);
    if (to_string(value) == text) return value;
    known += (i == 0 ? "" : ", ") + std::string(to_string(value));
  }
  throw UsageError(std::string(option) + " '" + text + "': expected one of " + known);
}

}  // namespace

std::size_t parse_size(const std::string& text) {
  std::size_t value = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, value);
  std::string suffix;
  for (const char* c = end; c != last; ++c) {
    suffix.push_back(static_cast<char>(std::toupper(static_cast<unsigned char>(*c))));
  }
  constexpr std::string_view kUnits = "KMG";
  int shift = 0;
  const bool plain = suffix.empty() || suffix == "B";
  if (!plain) {
    const std::size_t unit = kUnits.find(suffix.front());
    const std::string rest = suffix.substr(1);
    if (unit == std::string_view::npos || !(rest.empty() || rest == "B" || rest == "IB")) {
      throw UsageError("'" + text + "' is no size: expected something like 256, 4K, 16M or 1G");
    }
    shift = 10 * static_cast<int>(unit + 1);
  }
  if (error != std::errc() || value == 0 ||
      value > (std::numeric_limits<std::size_t>::max() >> (shift + 1))) {
    throw UsageError("'" + text + "' is no size: expected something like 256, 4K, 16M or 1G");
  }
  return value << shift;
}

CommandLine parse_command_line(int argc, const char* const* argv) {
  CommandLine line;
  Options& options = line.options;
  std::string kind;
  std::string begin = "4";
  std::string end = "64M";
  std::string dtype(to_string(options.dtype));
  std::string op(to_string(options.op));
  std::string device = "cpu";
  double budget = 0.5;

  CLI::App app("Measures one collective over a range of sizes. Start it with hvdrun or mpirun.",
               "hvd_bench");
  app.add_option(
         "collective", kind,
         "allreduce, allgather, broadcast, reducescatter, alltoall, sendrecv or barrier; or "
         "negotiation or startup")
      ->required();
  app.add_option("-b,--begin", begin, "smallest size in bytes; K, M and G are powers of 1024");
  app.add_option("-e,--end", end, "largest size in bytes");
  app.add_option("-f,--factor", options.factor, "from one size to the next")
      ->check(CLI::Range(std::size_t{2}, std::size_t{1} << 20));
  app.add_option("--dtype", dtype, "u8 i8 i16 i32 i64 f16 bf16 f32 f64 bool");
  app.add_option("--op", op, "average, sum, min, max or product");
  app.add_option("--root", options.root, "of a broadcast")->check(CLI::NonNegativeNumber);
  app.add_option("--iters", options.iterations, "per size; 0: as many as fit into --seconds")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--warmup", options.warmup, "iterations before the measured ones")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--seconds", budget, "per size, without --iters")
      ->check(CLI::Range(0.001, 3600.0));
  app.add_flag("--check,!--no-check", options.check, "count wrong elements (the default)");
  app.add_flag("--arena,!--private", options.arena,
               "inputs in the memory that the ranks of a host share, or in private memory (the "
               "default)");
  app.add_flag("--engine", options.engine,
               "allreduce only: calls the engine of the host, with nothing submitted or agreed on");
  app.add_option("--device", device,
                 "cpu, or cuda: allreduce and broadcast on the GPU of the local rank")
      ->check(CLI::IsMember({"cpu", "cuda"}));
  app.add_flag("--load-only", options.load_only, "startup only: ends as soon as it is loaded");
  app.add_option("--json", options.json, "rank 0 writes the rows to this file");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help();
    line.help = true;
    return line;
  } catch (const CLI::ParseError& error) {
    throw UsageError(error.what());
  }

  options.negotiation = kind == "negotiation";
  options.startup = kind == "startup";
  options.sendrecv = kind == "sendrecv";
  if (options.sendrecv) {
    options.kind = OpKind::broadcast;
  } else if (!options.negotiation && !options.startup) {
    options.kind = parse_name<OpKind>(kind, static_cast<int>(OpKind::barrier) + 1, "collective");
  }
  // A complex type is as fast as twice as many of its real type.
  options.dtype = parse_name<DType>(dtype, static_cast<int>(DType::boolean) + 1, "--dtype");
  options.op = parse_name<ReduceOp>(op, kReduceOpCount, "--op");
  if (options.engine &&
      (options.negotiation || options.startup || options.kind != OpKind::allreduce)) {
    throw UsageError("--engine is for allreduce only");
  }
  options.cuda = device == "cuda";
  const bool on_gpu = options.kind == OpKind::allreduce || options.kind == OpKind::broadcast;
  if (options.cuda &&
      (!on_gpu || options.negotiation || options.startup || options.sendrecv || options.engine)) {
    throw UsageError("--device cuda is for allreduce and broadcast, without --engine");
  }
  if (options.cuda && options.arena) throw UsageError("--arena is memory of the host");
  options.begin = parse_size(begin);
  options.end = parse_size(end);
  options.budget = std::chrono::milliseconds(static_cast<std::int64_t>(budget * 1000));
  if (options.begin > options.end) throw UsageError("-b " + begin + " is more than -e " + end);
  if (reduces(options.kind) && options.op == ReduceOp::average && options.dtype == DType::boolean) {
    throw UsageError("--op average has no meaning for --dtype bool");
  }
  return line;
}

}  // namespace hvd::bench
