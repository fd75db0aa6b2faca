#include <array>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <hvd/core/types.hpp>

namespace hvd {
namespace {

struct DTypeInfo {
  std::size_t size;
  std::string_view name;
};

constexpr std::array<DTypeInfo, kDTypeCount> kDTypes{{{1, "u8"},
                                                      {1, "i8"},
                                                      {2, "i16"},
                                                      {4, "i32"},
                                                      {8, "i64"},
                                                      {2, "f16"},
                                                      {2, "bf16"},
                                                      {4, "f32"},
                                                      {8, "f64"},
                                                      {1, "bool"},
                                                      {8, "c64"},
                                                      {16, "c128"}}};
constexpr std::array<std::string_view, kReduceOpCount> kReduceOps{"average", "sum", "min", "max",
                                                                  "product"};
constexpr std::array<std::string_view, kOpKindCount> kOpKinds{
    "allreduce", "allgather", "broadcast",       "reducescatter",     "alltoall",
    "barrier",   "join",      "add_process_set", "remove_process_set"};

template <class Enum>
constexpr std::size_t index(Enum value) {
  return static_cast<std::size_t>(value);
}

}  // namespace

std::size_t size_of(DType dtype) noexcept { return kDTypes[index(dtype)].size; }

std::int64_t element_count(const Shape& shape) noexcept {
  std::int64_t count = 1;
  for (const std::int64_t dimension : shape) count *= dimension;
  return count;
}

std::string_view to_string(DType dtype) noexcept { return kDTypes[index(dtype)].name; }
std::string_view to_string(ReduceOp op) noexcept { return kReduceOps[index(op)]; }
std::string_view to_string(OpKind kind) noexcept { return kOpKinds[index(kind)]; }

std::string to_string(Device device) {
  return device.kind == Device::Kind::cpu ? "cpu" : fmt::format("cuda:{}", device.index);
}

std::string to_string(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ",")); }

}  // namespace hvd
