// What rank 0 did, told to all.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include <hvd/core/context.hpp>
#include <hvd/core/error.hpp>

namespace hvd {

/// The longest text of an error that ranks tell each other.
inline constexpr std::size_t kLongestReport = std::size_t{1} << 20;

/// Rank 0 attempts, all share: its error is thrown on every rank.
class Outcome {
 public:
  /// Keeps what `function` throws, as an Error.
  void attempt(const std::function<void()>& function);
  /// Collective.
  void share(Context& context) const;

 private:
  void set(const Error& error);

  std::optional<Errc> code_;
  std::string text_;
};

}  // namespace hvd
