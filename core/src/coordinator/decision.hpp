// What rank 0 decides and every rank carries out, in the order decided.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include <hvd/core/error.hpp>
#include <hvd/core/types.hpp>

namespace hvd {

/// Run these tensors as one collective. Every rank finds the rest in its own tensor table.
struct Batch {
  std::vector<std::string> names;
  /// Allgather only: per name, the first dimension that each rank contributes.
  std::vector<std::vector<std::int64_t>> first_dimensions;

  friend bool operator==(const Batch&, const Batch&) = default;
};

/// Fail this operation on every rank that has it pending; the context stays usable.
struct Rejection {
  std::string name;
  Errc code = Errc::mismatch;
  std::string message;

  friend bool operator==(const Rejection&, const Rejection&) = default;
};

using Decision = std::variant<Batch, Rejection>;

}  // namespace hvd
