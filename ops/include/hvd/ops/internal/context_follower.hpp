// For objects that use the default contexts of successive generations.
#pragma once

#include <memory>

#include <hvd/core/context.hpp>

namespace hvd::detail {

/// An object, such as an optimizer, that may exist before the default context and after it.
/// Programs make such objects in the same order on all ranks, and `elastic_run` attaches them in
/// this order. The thread of `elastic_run` makes, calls and destroys them.
class ContextFollower {
 public:
  ContextFollower(const ContextFollower&) = delete;
  ContextFollower& operator=(const ContextFollower&) = delete;

  /// Forgets the context, which still exists but is shut down or disconnected, so that nothing that
  /// this object has submitted is pending. Does nothing when the object is not attached.
  virtual void detach() noexcept = 0;
  /// Uses `context`, which is the default context, from now on. Collective. Does nothing when the
  /// object is attached to it already, as when it was made after the context. May throw what a
  /// collective throws; `detach` is called then.
  virtual void attach(Context& context) = 0;

 protected:
  /// Adds this object to those that `elastic_run` attaches, unless it is made in a body of
  /// `hvd::threads`. Does not attach it.
  ContextFollower();
  ~ContextFollower();
};

/// Call these functions of all followers, in the order of their construction.
void detach_followers() noexcept;
void attach_followers(Context& context);

/// Returns an object that expires when the default context of the calling thread ends. Two default
/// contexts have different ones, also when one has the address of the other. It is empty when the
/// thread has no default context.
[[nodiscard]] std::weak_ptr<const void> life_of_default_context() noexcept;

}  // namespace hvd::detail
