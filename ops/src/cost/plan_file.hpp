// Plans that were measured before, in a text file: a line for every topology, "SIGNATURE PLAN".
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "cost/plan.hpp"

namespace hvd {

class PlanFile {
 public:
  explicit PlanFile(std::string path) : path_(std::move(path)) {}

  /// Nothing where there is no such file or line. `signature` has no blanks. Throws
  /// Errc::invalid_argument naming the file when the line makes no sense.
  [[nodiscard]] std::optional<Plan> load(std::string_view signature) const;
  /// Puts this line in place of the earlier one; other lines stay. Readers see the old file or the
  /// new one. Of two jobs that save at the same time one may be forgotten. Throws Errc::resource.
  void save(std::string_view signature, const Plan& plan) const;

 private:
  [[nodiscard]] std::string read() const;

  std::string path_;
};

}  // namespace hvd
