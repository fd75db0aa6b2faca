#include "arrow_status.hpp"

#include <fmt/format.h>

namespace hvd {

std::string text_of(const arrow::Status& status) {
  std::string text = status.message();
  if (status.detail() != nullptr) text += fmt::format(" ({})", status.detail()->ToString());
  for (char& c : text) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  return text;
}

Errc code_of(const arrow::Status& status) noexcept {
  if (status.IsInvalid() || status.IsTypeError() || status.IsKeyError() || status.IsIndexError()) {
    return Errc::invalid_argument;
  }
  return status.IsNotImplemented() ? Errc::unsupported : Errc::resource;
}

void check(const arrow::Status& status, const std::string& what) {
  if (status.ok()) return;
  throw Error(code_of(status), fmt::format("{}: {}", what, text_of(status)));
}

}  // namespace hvd
