#include "transport/shm_segment.hpp"

#include <cerrno>
#include <cstring>
#include <new>
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

ShmSegment::ShmSegment(UniqueFd fd, std::size_t size) : fd_(std::move(fd)), size_(size) {
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
  if (memory == MAP_FAILED) throw_refused("mmap", size);
  memory_ = static_cast<std::byte*>(memory);
  if (::madvise(memory_, size, MADV_DONTFORK) != 0) throw_refused("madvise", size);
}

ShmSegment::ShmSegment(ShmSegment&& other) noexcept
    : fd_(std::move(other.fd_)),
      memory_(std::exchange(other.memory_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

ShmSegment& ShmSegment::operator=(ShmSegment&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(memory_, other.memory_);
  std::swap(size_, other.size_);
  return *this;
}

ShmSegment::~ShmSegment() {
  if (memory_ != nullptr) ::munmap(memory_, size_);
}

ShmSegment ShmSegment::create(const ShmLayout& layout, int owner) {
  const std::size_t size = layout.size();
  UniqueFd fd(::memfd_create("hvd-rings", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) throw_refused("memfd_create", size);
  if (::ftruncate(fd.get(), static_cast<off_t>(size)) != 0) throw_refused("ftruncate", size);
  // Now rather than at the first touch, where a full machine would answer with a signal.
  if (::fallocate(fd.get(), 0, 0, static_cast<off_t>(size)) != 0) throw_refused("fallocate", size);
  if (::fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) throw_refused("F_ADD_SEALS", size);

  ShmSegment segment(std::move(fd), size);
  new (segment.memory_) ShmHeader(layout.header(owner));
  new (segment.memory_ + ShmLayout::doorbell()) ShmDoorbell;
  for (int sender = 0; sender < layout.ranks(); ++sender) {
    if (sender != owner) new (segment.memory_ + layout.counters(owner, sender)) ShmCounters;
  }
  return segment;
}

ShmSegment ShmSegment::attach(UniqueFd fd, const ShmLayout& layout, int owner) {
  const auto refuse = [&](const std::string& why) {
    return peer_violation(owner, "shared memory refused: " + why);
  };
  if (const int seals = ::fcntl(fd.get(), F_GET_SEALS); seals < 0 || (seals & kSeals) != kSeals) {
    throw refuse("it is not sealed");
  }
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0 || status.st_size != static_cast<off_t>(layout.size())) {
    throw refuse("its size is wrong");
  }
  ShmSegment segment(std::move(fd), layout.size());
  const std::string problem = layout.problem_with({segment.memory_, segment.size_}, owner);
  if (!problem.empty()) throw refuse(problem);
  return segment;
}

ShmDoorbell& ShmSegment::doorbell() const noexcept {
  return *std::launder(reinterpret_cast<ShmDoorbell*>(memory_ + ShmLayout::doorbell()));
}

ShmCounters& ShmSegment::counters(const ShmLayout& layout, int owner, int sender) const noexcept {
  return *std::launder(reinterpret_cast<ShmCounters*>(memory_ + layout.counters(owner, sender)));
}

std::span<std::byte> ShmSegment::data(const ShmLayout& layout, int owner,
                                      int sender) const noexcept {
  return {memory_ + layout.data(owner, sender), layout.capacity()};
}

}  // namespace hvd
