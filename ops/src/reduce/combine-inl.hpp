// Defines the reduce operations on vectors, compiled once per target.
// The file is included again for every target, so it has a toggled guard instead of a pragma.
#if defined(HVD_REDUCE_COMBINE_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef HVD_REDUCE_COMBINE_INL
#undef HVD_REDUCE_COMBINE_INL
#else
#define HVD_REDUCE_COMBINE_INL
#endif

#include <type_traits>

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace hvd::detail {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

struct Sum {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Add(a, b);
  }
};

struct Product {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Mul(a, b);
  }
};

/// A hardware minimum keeps or drops a NaN depending on which operand it is, so this function
/// decides.
template <class V>
HWY_INLINE V nan_wins(V a, V b, V otherwise) {
  if constexpr (std::is_floating_point_v<hn::TFromV<V>>) {
    return hn::IfThenElse(hn::IsNaN(a), a, hn::IfThenElse(hn::IsNaN(b), b, otherwise));
  } else {
    return otherwise;
  }
}

struct Minimum {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return nan_wins(a, b, hn::Min(a, b));
  }
};

struct Maximum {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return nan_wins(a, b, hn::Max(a, b));
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace hvd::detail
HWY_AFTER_NAMESPACE();

#endif
