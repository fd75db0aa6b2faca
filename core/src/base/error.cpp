#include <array>

#include <fmt/format.h>

#include <hvd/core/error.hpp>

namespace hvd {
namespace {

constexpr std::array<std::string_view, 13> kNames{
    "invalid argument", "mismatch", "duplicate name", "not initialized", "shut down",
    "peer lost",        "timeout",  "aborted",        "protocol",        "unauthenticated",
    "unsupported",      "resource", "internal"};

std::string compose(Errc code, const Fault& fault) {
  std::string text(to_string(code));
  if (fault.rank >= 0) text += fmt::format(": rank {}", fault.rank);
  if (!fault.host.empty()) text += fmt::format(" on {}", fault.host);
  if (!fault.cause.empty()) text += fmt::format(": {}", fault.cause);
  if (!fault.phase.empty()) text += fmt::format(", during {}", fault.phase);
  if (!fault.tensor.empty()) text += fmt::format(" of '{}'", fault.tensor);
  if (fault.elapsed.count() > 0) {
    text += fmt::format(", after {:.1f} s", static_cast<double>(fault.elapsed.count()) / 1000.0);
  }
  return text;
}

}  // namespace

std::string_view to_string(Errc code) noexcept { return kNames[static_cast<std::size_t>(code)]; }

Error::Error(Errc code, const std::string& message)
    : std::runtime_error(message), code_(code), fault_{} {
  fault_.cause = message;
}

Error::Error(Errc code, Fault fault)
    : std::runtime_error(compose(code, fault)), code_(code), fault_(std::move(fault)) {}

}  // namespace hvd
