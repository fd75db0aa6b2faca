#include "transport/sealed_memory.hpp"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <hvd/core/error.hpp>

#include "transport/failure.hpp"

namespace hvd {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

[[noreturn]] void throw_refused(const char* call, std::size_t size) {
  throw Error(Errc::resource,
              fmt::format("{} bytes of shared memory: {}: {}", size, call, std::strerror(errno)));
}

}  // namespace

SealedMemory::SealedMemory(UniqueFd fd, std::size_t size, bool writable)
    : fd_(std::move(fd)), size_(size) {
  const int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
  void* memory = ::mmap(nullptr, size, protection, MAP_SHARED, fd_.get(), 0);
  if (memory == MAP_FAILED) throw_refused("mmap", size);
  data_ = static_cast<std::byte*>(memory);
  if (::madvise(data_, size, MADV_DONTFORK) != 0) throw_refused("madvise", size);
}

SealedMemory::SealedMemory(SealedMemory&& other) noexcept
    : fd_(std::move(other.fd_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

SealedMemory& SealedMemory::operator=(SealedMemory&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

SealedMemory::~SealedMemory() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

SealedMemory SealedMemory::create(const char* name, std::size_t size, PeerAccess peers) {
  UniqueFd fd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) throw_refused("memfd_create", size);
  if (::ftruncate(fd.get(), static_cast<off_t>(size)) != 0) throw_refused("ftruncate", size);
  // Now rather than at the first touch, where a full machine would answer with a signal.
  if (::fallocate(fd.get(), 0, 0, static_cast<off_t>(size)) != 0) throw_refused("fallocate", size);

  SealedMemory memory(std::move(fd), size, true);  // before the seals: they spare this mapping
  const int read_only = peers == PeerAccess::read ? F_SEAL_FUTURE_WRITE : 0;
  const bool sealed = ::fcntl(memory.fd(), F_ADD_SEALS, kSeals | read_only) == 0 ||
                      (errno == EINVAL && ::fcntl(memory.fd(), F_ADD_SEALS, kSeals) == 0);
  if (!sealed) throw_refused("F_ADD_SEALS", size);
  return memory;
}

SealedMemory SealedMemory::attach(UniqueFd fd, std::size_t size, int owner, PeerAccess access) {
  const auto refuse = [owner](const char* why) {
    return peer_violation(owner, fmt::format("shared memory refused: {}", why));
  };
  if (const int seals = ::fcntl(fd.get(), F_GET_SEALS); seals < 0 || (seals & kSeals) != kSeals) {
    throw refuse("it is not sealed");
  }
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0 || status.st_size != static_cast<off_t>(size)) {
    throw refuse("its size is wrong");
  }
  return SealedMemory(std::move(fd), size, access == PeerAccess::write);
}

}  // namespace hvd
