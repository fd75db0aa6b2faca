// Writes a JSON array to disk that grows by appending.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <hvd/core/internal/fd.hpp>

namespace hvd::observe {

/// Every flush ends the file with "]" and the next one overwrites that, so the file is valid JSON
/// except while a flush writes. A process that is killed within a write leaves an array that ends
/// too early: trace viewers and hvdtrace read what is there. Each element begins on a line of its
/// own.
///
/// One thread at a time may call it.
class JsonArrayFile {
 public:
  /// Replaces the file at `path` by an array of one element. `max_bytes` is the size that `append`
  /// respects. Throws Errc::resource naming the path, as the other methods do.
  JsonArrayFile(std::string path, std::string_view first, std::size_t max_bytes);

  /// `element` is JSON. Returns false when the file would grow beyond its limit. May flush.
  [[nodiscard]] bool append(std::string_view element);
  /// Appends regardless of the limit. It serves the note that the file is full.
  void append_to_full(std::string_view element);
  /// Hands what was appended to the kernel. Without it, the destructor loses the elements.
  void flush();

 private:
  std::string path_;
  std::size_t max_bytes_;
  UniqueFd fd_;
  std::size_t written_ = 0;  // bytes of the file before its final "]"
  std::string staged_;       // text that follows these bytes
};

}  // namespace hvd::observe
