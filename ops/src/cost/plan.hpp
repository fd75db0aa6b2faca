// What a context decides by measuring: the ways of each part of the engine, as one text. Pure.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include <hvd/core/types.hpp>

#include "cost/ways.hpp"

namespace hvd {

/// Parts by name: "hosts" (flat, leaders, lanes), "ring" (doubling, ring), and "mpi/" with an
/// operation (collective, ring). The same plan gives the same bits.
class Plan {
 public:
  static constexpr std::string_view kHosts = "hosts";
  static constexpr std::string_view kRing = "ring";
  [[nodiscard]] static std::string mpi(OpKind kind);

  Plan& set(std::string_view part, Ways ways);
  /// `otherwise` where the plan says nothing.
  [[nodiscard]] Ways of(std::string_view part, const Ways& otherwise) const;
  /// This plan, where it says something, else `defaults`; of their parts only.
  [[nodiscard]] Plan over(const Plan& defaults) const;

  /// "PART=WAYS PART=WAYS …", by name.
  [[nodiscard]] std::string text() const;
  /// Reads `text()`. Throws Errc::invalid_argument quoting an unknown part or a way that it has
  /// not.
  [[nodiscard]] static Plan parse(std::string_view text);

  friend bool operator==(const Plan&, const Plan&) = default;

 private:
  std::map<std::string, Ways, std::less<>> parts_;
};

}  // namespace hvd
