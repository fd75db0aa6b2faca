// Reads the node-level arguments that a platform appends to those of a program.
#include <optional>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/address.hpp>
#include <hvd/core/internal/text.hpp>
#include <hvd/spawn.hpp>

#include "base/text.hpp"

namespace hvd {
namespace {

[[noreturn]] void refuse(std::string_view name, std::string_view value, std::string_view why) {
  throw Error(Errc::invalid_argument,
              fmt::format("{} {}: {}", name, launcher::in_quotes(value), why));
}

/// Returns the value of the argument. The last one counts, as with Python's argparse.
std::optional<std::string> argument(int argc, const char* const* argv, std::string_view name) {
  std::optional<std::string> value;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word.starts_with(name) && word.substr(name.size()).starts_with('=')) {
      value = word.substr(name.size() + 1);
    } else if (word == name && i + 1 < argc) {
      value = argv[i + 1];
    }
  }
  return value;
}

int number(std::string_view name, const std::string& text, int least) {
  const auto value = detail::to_number<int>(text);
  if (!value || *value < least) {
    refuse(name, text, fmt::format("expected a whole number, {} or more", least));
  }
  return *value;
}

}  // namespace

SpawnOptions node_options(int argc, const char* const* argv) {
  SpawnOptions options;
  const auto url = argument(argc, argv, "--init_method");
  if (!url) return options;
  constexpr std::string_view kScheme = "tcp://";
  if (!url->starts_with(kScheme)) refuse("--init_method", *url, "expected tcp://HOST:PORT");
  options.address = url->substr(kScheme.size());
  try {
    (void)Address::parse(fmt::format("tcp:{}", options.address));
  } catch (const Error&) {
    refuse("--init_method", *url, "expected tcp://HOST:PORT");
  }
  if (const auto text = argument(argc, argv, "--world_size")) {
    options.nodes = number("--world_size", *text, 1);
  }
  if (const auto text = argument(argc, argv, "--rank")) {
    options.node_rank = number("--rank", *text, 0);
  }
  if (options.node_rank >= options.nodes) {
    refuse("--rank", fmt::to_string(options.node_rank),
           fmt::format("expected less than --world_size, which is {}", options.nodes));
  }
  return options;
}

}  // namespace hvd
