#include "policy/mismatch.hpp"

#include <algorithm>
#include <functional>
#include <map>

#include <fmt/format.h>

#include <hvd/core/internal/text.hpp>

namespace hvd::detail {
namespace {

struct Field {
  std::string_view name;
  std::function<std::string(const Request&)> value;
};

/// Leaves out the first dimension of an allgather or alltoall, which may differ by rank.
std::string agreed_shape(const Request& request) {
  if (!needs_rows(request.kind) || request.shape.empty()) return to_string(request.shape);
  std::string text = "[*";
  for (std::size_t i = 1; i < request.shape.size(); ++i) {
    text += fmt::format(",{}", request.shape[i]);
  }
  return text + "]";
}

const std::vector<Field>& fields() {
  static const std::vector<Field> all{
      {"operation", [](const Request& r) { return std::string(to_string(r.kind)); }},
      {"dtype", [](const Request& r) { return std::string(to_string(r.dtype)); }},
      {"shape", agreed_shape},
      {"reduce op", [](const Request& r) { return std::string(to_string(r.op)); }},
      {"device",
       [](const Request& r) { return r.device.kind == Device::Kind::cpu ? "cpu" : "cuda"; }},
      {"root", [](const Request& r) { return fmt::format("rank {}", r.root); }},
      {"prescale", [](const Request& r) { return fmt::format("{}", r.prescale); }},
      {"group",
       [](const Request& r) {
         return r.group.empty() ? std::string("none")
                                : fmt::format("'{}' of {}", r.group, r.group_size);
       }},
      {"postscale", [](const Request& r) { return fmt::format("{}", r.postscale); }},
      {"conversion", [](const Request& r) { return r.f32_memory ? "from f32" : "none"; }},
  };
  return all;
}

}  // namespace

std::optional<std::string> describe_mismatch(std::span<const Request> requests,
                                             std::span<const std::vector<int>> ranks) {
  for (const Field& field : fields()) {
    std::map<std::string, std::vector<int>> asked;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      std::vector<int>& who = asked[field.value(requests[i])];
      who.insert(who.end(), ranks[i].begin(), ranks[i].end());
    }
    if (asked.size() == 1) continue;
    std::string text =
        fmt::format("{} '{}': ranks disagree on the {}:", to_string(requests[0].kind),
                    requests[0].name, field.name);
    std::string_view separator = " ";
    for (auto& [value, who] : asked) {
      std::sort(who.begin(), who.end());
      text += fmt::format("{}{} on {}", separator, value, ranks_text(who));
      separator = "; ";
    }
    return text;
  }
  return std::nullopt;
}

std::string describe_group_mismatch(const Request& request, std::string_view group,
                                    std::span<const int> with, std::span<const int> without) {
  return fmt::format(
      "{} '{}': ranks disagree on the members of group '{}': it is one on {}; it is none on {}",
      to_string(request.kind), request.name, group, ranks_text(with), ranks_text(without));
}

}  // namespace hvd::detail
