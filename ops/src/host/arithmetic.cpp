#include "host/arithmetic.hpp"

#include "fusion/identity.hpp"
#include "reduce/scale.hpp"

namespace hvd::detail {

void HostArithmetic::load(std::byte* to, const std::byte* from, std::int64_t count) const {
  if (from == nullptr) {
    fill_identity(asked_.dtype, asked_.op, to, count);
  } else {
    scale(asked_.dtype, to, from, count, asked_.prescale);
  }
}

}  // namespace hvd::detail
