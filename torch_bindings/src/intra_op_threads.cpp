#include <algorithm>
#include <memory>

#include <ATen/Parallel.h>

#include <hvd/torch/intra_op_threads.hpp>

namespace hvd {

std::function<void()> detail::share_intra_op_threads(int ranks) {
  const int all = at::get_num_threads();
  // `set_num_threads` also sets the number with which later threads of the program begin.
  const std::shared_ptr<void> restore(nullptr, [all](void*) { at::set_num_threads(all); });
  return [share = std::max(1, all / ranks), restore] {
    // The first question on a thread gives it the number of the process, so it comes first.
    static_cast<void>(at::get_num_threads());
    at::set_num_threads(share);
  };
}

}  // namespace hvd
