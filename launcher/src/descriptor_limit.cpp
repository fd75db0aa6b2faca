#include "descriptor_limit.hpp"

namespace hvd::launcher {

DescriptorLimit::DescriptorLimit() noexcept {
  if (::getrlimit(RLIMIT_NOFILE, &before_) != 0) return;
  rlimit wanted = before_;
  wanted.rlim_cur = wanted.rlim_max;
  raised_ = ::setrlimit(RLIMIT_NOFILE, &wanted) == 0;
}

void DescriptorLimit::restore() const noexcept {
  if (raised_) ::setrlimit(RLIMIT_NOFILE, &before_);
}

}  // namespace hvd::launcher
