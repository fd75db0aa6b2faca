#include "shared_memory.hpp"

#include <cerrno>
#include <system_error>

#include <sys/mman.h>
#include <unistd.h>

namespace hvd::bounds {
namespace {

[[noreturn]] void refuse(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

}  // namespace

SharedMemory::SharedMemory(std::size_t bytes) : size_(bytes) {
  const int file = ::memfd_create("bench_bounds", MFD_CLOEXEC);
  if (file < 0) refuse("memfd_create");
  void* memory = MAP_FAILED;
  if (::ftruncate(file, static_cast<off_t>(size_)) == 0) {
    memory = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  }
  const int error = errno;
  ::close(file);
  errno = error;
  if (memory == MAP_FAILED) refuse("shared memory");
  data_ = static_cast<std::byte*>(memory);
}

SharedMemory::~SharedMemory() { ::munmap(data_, size_); }

}  // namespace hvd::bounds
