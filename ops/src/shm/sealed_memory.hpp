// Manages memory that one rank makes and others map.
#pragma once

#include <cstddef>
#include <string>

#include <hvd/core/internal/fd.hpp>

namespace hvd::detail {

/// Owns a memfd, which has no name in /dev/shm and is freed with its last holder. It is sealed, so
/// that no holder can shrink it while others use it. A forked child does not inherit the mapping.
class SealedMemory {
 public:
  /// Makes memory that is zero. Only the first `committed` bytes are backed by pages at once;
  /// `commit` does that for others. Throws Errc::resource.
  [[nodiscard]] static SealedMemory create(const char* name, std::size_t size,
                                           std::size_t committed);
  /// Maps the memory that rank `owner` passed, of at least `least` bytes, and closes `fd`: only the
  /// owner calls `commit`, `release` and `make_private`. Throws Errc::protocol naming the rank when
  /// the memory is smaller or not sealed.
  [[nodiscard]] static SealedMemory attach(UniqueFd fd, std::size_t least, int owner);

  /// Takes pages from the system now and not at the first access, where a lack of memory would end
  /// the process with a signal. Returns false when the system refuses.
  [[nodiscard]] bool commit(std::size_t offset, std::size_t size) const noexcept;
  /// Gives whole pages back to the system, for all holders. They read as zero afterwards.
  void release(std::size_t offset, std::size_t size) const noexcept;
  /// Replaces whole pages in this process by private copies: from then on it does not see what
  /// other holders write there, nor do they see what it writes. What other threads of this process
  /// write meanwhile is not lost. The caller calls it once for a page. Returns an empty text, or
  /// why the system refused, and then nothing has changed.
  [[nodiscard]] std::string make_private(std::size_t offset, std::size_t size) const;

  SealedMemory() noexcept = default;
  SealedMemory(SealedMemory&& other) noexcept;
  SealedMemory& operator=(SealedMemory&& other) noexcept;
  ~SealedMemory();

  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  SealedMemory(UniqueFd fd, std::size_t size);

  UniqueFd fd_;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace hvd::detail
