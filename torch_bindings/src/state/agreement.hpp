// Functions with which ranks compare values, or agree on one. All of them are collective.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <hvd/core/context.hpp>
#include <hvd/core/error.hpp>
#include <hvd/torch/named_tensors.hpp>

namespace hvd::detail {

/// The name of a value in messages, and the digest of the value on this rank.
using NamedDigest = std::pair<std::string, std::uint64_t>;

/// Returns the first difference between the ranks of the process set, in words, or an empty text
/// when all have the same digests in the same order. `topic` names the collectives.
[[nodiscard]] std::string first_difference(Context& context, const std::vector<NamedDigest>& mine,
                                           const std::string& topic, std::int32_t process_set = 0);
/// Returns a number, the same on all ranks of the process set, that no earlier call with this topic
/// has returned.
[[nodiscard]] std::int64_t agree_on_instance(Context& context, const std::string& topic,
                                             std::int32_t process_set);

/// Overwrites the tensors with those of rank `root`. All broadcasts run at once; their names begin
/// with `prefix`. Returns when all have ended, and then throws the first error.
void broadcast_tensors(Context& context, const NamedTensors& tensors, const std::string& prefix,
                       int root, std::int32_t process_set = 0);

/// Informs all ranks whether rank 0 has succeeded. Rank 0 calls `attempt`, and all ranks call
/// `share`, which throws the error of rank 0 on every rank.
class Outcome {
 public:
  /// Calls the function and keeps what it throws, as an Error.
  void attempt(const std::function<void()>& function);
  void share(Context& context) const;

 private:
  std::optional<Error> error_;
};

/// Calls the function on rank 0. Returns its result, or throws its error, on every rank.
[[nodiscard]] std::string on_rank_0(Context& context, const std::function<std::string()>& function);

/// Returns what the exception says, as an Error. An exception of another type becomes
/// Errc::invalid_argument.
[[nodiscard]] Error as_error(const std::exception_ptr& exception);

/// The greatest length of an error's text that ranks send to each other.
inline constexpr std::size_t kLongestReport = std::size_t{1} << 20;

}  // namespace hvd::detail
