// Keeps the first of several errors.
#pragma once

#include <exception>
#include <utility>

namespace hvd::detail {

/// Keeps the first error of work that has to go on after a part of it has failed. Not thread-safe.
class FirstError {
 public:
  /// Calls the function and keeps what it throws, unless there is an earlier error.
  template <class Function>
  void keep(const Function& function) noexcept {
    try {
      function();
    } catch (...) {
      if (!first_) first_ = std::current_exception();
    }
  }
  [[nodiscard]] explicit operator bool() const noexcept { return first_ != nullptr; }
  void clear() noexcept { first_ = nullptr; }
  /// Throws the error, if there is one, and keeps it.
  void rethrow() const {
    if (first_) std::rethrow_exception(first_);
  }
  /// Throws the error, if there is one, and forgets it.
  void take() {
    if (first_) std::rethrow_exception(std::exchange(first_, nullptr));
  }

 private:
  std::exception_ptr first_;
};

}  // namespace hvd::detail
