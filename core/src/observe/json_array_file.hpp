// A JSON array on disk that grows and is valid JSON at every moment, also when the process is
// killed in the middle of a write.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include <hvd/core/fd.hpp>

namespace hvd::observe {

/// How: the file is an array padded with blanks, its "]" at the very end, and elements overwrite
/// blanks. A write that is cut short by SIGKILL ends where the kernel went from one page to the
/// next, so no element crosses the boundary of a page: whatever arrived is whole elements, and
/// the rest still blanks. The closing bracket never moves. When the blanks are used up, a copy
/// with more of them replaces the file by rename, and the last such copy has none. (Overwriting the
/// bracket in place cannot work: of two writes, or two pages of one, there is always a state
/// between with no bracket or two.)
///
/// One thread at a time.
class JsonArrayFile {
 public:
  static constexpr std::size_t kPage = 4096;  ///< the smallest there is
  static constexpr std::size_t kMaxElement = kPage - 8;
  static constexpr std::size_t kFirstBytes = std::size_t{64} << 10;

  /// Replaces what is at `path`; the array has one element to begin with. `max_bytes` is the size
  /// it may grow to, at least `kFirstBytes`. Throws Errc::resource naming the path, as the others
  /// do.
  JsonArrayFile(std::string path, std::string_view first, std::size_t max_bytes);
  /// Without `close()` the file is left as the last `flush()` left it.
  ~JsonArrayFile() = default;
  JsonArrayFile(const JsonArrayFile&) = delete;
  JsonArrayFile& operator=(const JsonArrayFile&) = delete;

  /// `element` is JSON, at most `kMaxElement` bytes. False when the file is full.
  [[nodiscard]] bool append(std::string_view element);
  /// As above, but a full file grows by a page: for the note that it is full.
  void append_to_full(std::string_view element);
  /// Hands what was appended to the kernel.
  void flush();
  /// Flushes and drops the blanks at the end. Nothing may follow.
  void close();

  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  struct Free {
    void operator()(char* memory) const noexcept { std::free(memory); }
  };

  [[nodiscard]] bool append_within(std::string_view element, std::size_t max_bytes);
  [[nodiscard]] bool make_room(std::size_t needed, std::size_t max_bytes);
  void put(std::size_t offset, std::string_view text);
  void replace(std::size_t capacity);
  void rebase() noexcept;

  std::string path_;
  std::size_t max_bytes_;
  UniqueFd fd_;
  std::size_t capacity_ = 0;  // bytes of the file
  std::size_t written_ = 0;   // the file's content ends here, blanks follow
  std::size_t end_ = 0;       // with what is staged
  // The file's bytes from base_ on. It begins at a page and is aligned to one, so that a copy from
  // it breaks at the file's page boundaries only.
  std::unique_ptr<char, Free> stage_;
  std::size_t base_ = 0;
};

}  // namespace hvd::observe
