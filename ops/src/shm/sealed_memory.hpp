// Memory that one rank makes and others map.
#pragma once

#include <cstddef>
#include <string>

#include <hvd/core/fd.hpp>

namespace hvd {

/// A memfd: without a name, gone with its last holder, never in /dev/shm. Sealed, so that no holder
/// can shrink it under another's feet. The mapping is not inherited by fork.
class SealedMemory {
 public:
  /// Zeroes. Only the first `committed` bytes have memory at once; `commit` is for the rest. Throws
  /// Errc::resource.
  [[nodiscard]] static SealedMemory create(const char* name, std::size_t size,
                                           std::size_t committed);
  /// Maps what rank `owner` passed, of at least `least` bytes. Throws Errc::protocol naming the
  /// rank when it is smaller or not sealed.
  [[nodiscard]] static SealedMemory attach(UniqueFd fd, std::size_t least, int owner);

  /// Takes pages from the system now, rather than at the first touch, where a machine without any
  /// left answers with a signal. False when it refuses.
  [[nodiscard]] bool commit(std::size_t offset, std::size_t size) const noexcept;
  /// Gives pages back; whole ones, which read as zeroes afterwards. For every holder.
  void release(std::size_t offset, std::size_t size) const noexcept;
  /// Whole pages become this process's own, with what was in them: what other
  /// holders write there afterwards it does not see, nor they what it writes. Loses nothing that
  /// other threads of this process write meanwhile. Once for a page. Returns why it was refused,
  /// and then all is as before; else nothing.
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

}  // namespace hvd
