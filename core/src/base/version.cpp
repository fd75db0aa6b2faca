#include <hvd/core/version.hpp>

namespace hvd {

std::string_view version() noexcept { return HVD_VERSION; }

}  // namespace hvd
