// Turns the fields of an optimizer into bytes and a list of tensors, and back.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include <torch/types.h>

#include <hvd/core/internal/wire.hpp>

namespace hvd::detail {

/// Writes numbers, and the dtypes and shapes of tensors, as bytes. The tensors go into a separate
/// list.
class FieldWriter {
 public:
  template <class... Fields>
  void operator()(const Fields&... fields) {
    (field(fields), ...);
  }
  void count(std::size_t value) { wire_.u32(static_cast<std::uint32_t>(value)); }

  [[nodiscard]] Bytes take_bytes() { return wire_.take(); }
  [[nodiscard]] std::vector<torch::Tensor> take_tensors() { return std::move(tensors_); }

 private:
  void field(double value) { wire_.f64(value); }
  void field(std::int64_t value) { wire_.i64(value); }
  void field(bool value) { wire_.u8(value ? 1 : 0); }
  void field(const std::string& value) { wire_.text(value); }
  void field(const torch::Tensor& value);
  template <class T>
  void field(const std::optional<T>& value) {
    field(value.has_value());
    if (value) field(*value);
  }
  template <template <class...> class Sequence>
  void field(const Sequence<torch::Tensor>& values) {
    count(values.size());
    for (const torch::Tensor& value : values) field(value);
  }

  WireWriter wire_;
  std::vector<torch::Tensor> tensors_;
};

/// Reads what a `FieldWriter` wrote. It makes uninitialised tensors and lists them in the writer's
/// order, so that the caller can fill them in. Throws Errc::protocol.
class FieldReader {
 public:
  explicit FieldReader(std::span<const std::byte> bytes) : wire_(bytes, "optimizer state") {}

  /// Sets the parameter whose state is read next. New tensors get its device and, if they have its
  /// shape, its strides.
  void set_like(const torch::Tensor& parameter) { like_ = parameter; }
  template <class... Fields>
  void operator()(Fields&... fields) {
    (field(fields), ...);
  }
  [[nodiscard]] std::size_t count() { return wire_.count(1); }
  void finish() const { wire_.finish(); }

  [[nodiscard]] std::vector<torch::Tensor> take_tensors() { return std::move(tensors_); }

 private:
  void field(double& value) { value = wire_.f64(); }
  void field(std::int64_t& value) { value = wire_.i64(); }
  void field(bool& value);
  void field(std::string& value) { value = wire_.text(kLongestText); }
  void field(torch::Tensor& value);
  template <class T>
  void field(std::optional<T>& value) {
    bool present = false;
    field(present);
    value.reset();
    if (present) field(value.emplace());
  }
  template <template <class...> class Sequence>
  void field(Sequence<torch::Tensor>& values) {
    values.clear();
    for (std::size_t left = count(); left > 0; --left) field(values.emplace_back());
  }

  static constexpr std::size_t kLongestText = 256;

  WireReader wire_;
  torch::Tensor like_;
  std::vector<torch::Tensor> tensors_;
};

}  // namespace hvd::detail
