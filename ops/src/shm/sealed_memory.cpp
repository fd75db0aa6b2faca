#include "shm/sealed_memory.hpp"

#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <hvd/core/error.hpp>

#include "transport/failure.hpp"

namespace hvd::detail {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

[[noreturn]] void throw_refused(const char* call, std::size_t size) {
  throw Error(Errc::resource,
              fmt::format("{} bytes of shared memory: {}: {}", size, call, std::strerror(errno)));
}

constexpr std::size_t kPage = 4096;  // the smallest size of a page

/// Writes to each page of a private mapping the value that it has, which makes the page a copy.
void touch(std::byte* memory, std::size_t size) noexcept {
  for (std::size_t at = 0; at < size; at += kPage) {
    const std::atomic_ref<std::byte> first(memory[at]);  // other threads may write to it
    std::byte held = first.load(std::memory_order_relaxed);
    while (!first.compare_exchange_weak(held, held, std::memory_order_relaxed)) {
    }
  }
}

Error refused(int owner, const char* why) {
  return peer_violation(owner, fmt::format("shared memory refused: {}", why));
}

}  // namespace

SealedMemory::SealedMemory(UniqueFd fd, std::size_t size) : fd_(std::move(fd)), size_(size) {
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
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

SealedMemory SealedMemory::create(const char* name, std::size_t size, std::size_t committed) {
  UniqueFd fd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) throw_refused("memfd_create", size);
  if (::ftruncate(fd.get(), static_cast<off_t>(size)) != 0) throw_refused("ftruncate", size);
  SealedMemory memory(std::move(fd), size);
  if (!memory.commit(0, committed)) throw_refused("fallocate", committed);
  if (::fcntl(memory.fd(), F_ADD_SEALS, kSeals) != 0) throw_refused("F_ADD_SEALS", size);
  return memory;
}

SealedMemory SealedMemory::attach(UniqueFd fd, std::size_t least, int owner) {
  if (const int seals = ::fcntl(fd.get(), F_GET_SEALS); seals < 0 || (seals & kSeals) != kSeals) {
    throw refused(owner, "it is not sealed");
  }
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0 || status.st_size < static_cast<off_t>(least)) {
    throw refused(owner, "its size is wrong");
  }
  SealedMemory memory(std::move(fd), static_cast<std::size_t>(status.st_size));
  memory.fd_.reset();  // the mapping holds the memory, and only its owner changes its pages
  return memory;
}

bool SealedMemory::commit(std::size_t offset, std::size_t size) const noexcept {
  if (size == 0) return true;
  int result = 0;
  do {
    result = ::fallocate(fd_.get(), 0, static_cast<off_t>(offset), static_cast<off_t>(size));
  } while (result != 0 && errno == EINTR);
  return result == 0;
}

void SealedMemory::release(std::size_t offset, std::size_t size) const noexcept {
  if (size == 0) return;
  // If the system refuses, the pages stay, which does no harm.
  static_cast<void>(::fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                static_cast<off_t>(offset), static_cast<off_t>(size)));
}

std::string SealedMemory::make_private(std::size_t offset, std::size_t size) const {
  if (size == 0) return {};
  const auto map = [&](int sharing) {
    return ::mmap(data_ + offset, size, PROT_READ | PROT_WRITE, sharing | MAP_FIXED, fd_.get(),
                  static_cast<off_t>(offset)) != MAP_FAILED;
  };
  // The private mapping shows the shared pages until they are written to, so no store of another
  // thread is lost.
  if (!map(MAP_PRIVATE)) {
    const int why = errno;
    // Some kernels have removed the old mapping when they refuse the new one.
    if (map(MAP_SHARED)) static_cast<void>(::madvise(data_ + offset, size, MADV_DONTFORK));
    return fmt::format("{} bytes of private memory: {}", size, std::strerror(why));
  }
  touch(data_ + offset, size);
  return {};
}

}  // namespace hvd::detail
