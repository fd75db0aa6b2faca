// Calls back at the end of every backward pass of a thread.
#pragma once

#include <functional>
#include <memory>
#include <thread>

#include <ATen/record_function.h>

namespace hvd::detail {

/// While it lives, LibTorch calls `check` at the end of each backward pass that is begun by the
/// thread of the constructor, whichever parameters the pass uses. What `check` throws leaves
/// `backward()`. Of nodes on a GPU, LibTorch tells only its own thread, which does not know whose
/// pass it runs: such passes are checked while all observers of the process belong to one thread.
///
/// LibTorch calls an observer before every node of a pass, which takes a fraction of a microsecond.
class PassObserver {
 public:
  explicit PassObserver(std::function<void()> check);
  /// Must be called on the thread of the constructor.
  ~PassObserver();
  PassObserver(const PassObserver&) = delete;
  PassObserver& operator=(const PassObserver&) = delete;

 private:
  static std::unique_ptr<at::ObserverContext> before_node(const at::RecordFunction& node);
  static void check_all();

  const std::function<void()> check_;
  const std::thread::id owner_;
  const at::CallbackHandle handle_;
};

}  // namespace hvd::detail
