// Compresses gradients, so that their reduction sends fewer bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <torch/types.h>

#include <hvd/core/context.hpp>
#include <hvd/torch/tensor_work.hpp>

namespace hvd {

/// The type in which values of f32 and f64 are sent and reduced; each partial sum is rounded to it.
/// Other dtypes are sent as they are. fp16 overflows above 65,504: use a prescale, or bf16.
enum class Compression : std::uint8_t { none, fp16, bf16 };

/// The collectives of a compressed gradient, among the ranks that train its parameter. `topic`
/// distinguishes the messages of one gradient; all ranks use the same topics in the same order.
class GradientExchange {
 public:
  GradientExchange(Context& context, std::string name, std::int32_t process_set);

  /// Starts an allreduce that averages the tensor over the ranks.
  [[nodiscard]] TensorWork average(const torch::Tensor& tensor, std::string_view topic) const;
  /// Starts an allgather, which concatenates the ranks' tensors along the first dimension.
  [[nodiscard]] TensorWork gather(const torch::Tensor& tensor, std::string_view topic) const;
  /// Returns the number of ranks.
  [[nodiscard]] int ranks() const;

 private:
  Context& context_;
  std::string name_;
  std::int32_t process_set_;
};

/// Compresses the gradient of one parameter, step after step. It keeps its state between steps,
/// such as the error of the compression, which is added to the next gradient.
class CompressedGradient {
 public:
  virtual ~CompressedGradient() = default;
  /// Compresses the gradient, which is dense and on the parameter's device, and submits the first
  /// messages. Runs in the autograd hook and must not wait.
  virtual void begin(const GradientExchange& exchange, const torch::Tensor& gradient) = 0;
  /// Waits for the messages that were submitted. Then it either submits the next ones and returns
  /// false, or writes the average over the ranks into `gradient` and returns true. All ranks must
  /// write the same bits. Runs on the thread that ends the backward pass or calls `step()`, for one
  /// parameter after another, in the same order on all ranks.
  [[nodiscard]] virtual bool go_on(const GradientExchange& exchange,
                                   const torch::Tensor& gradient) = 0;
};

/// A kind of compression. Several optimizers may share one object.
class GradientCompressor {
 public:
  virtual ~GradientCompressor() = default;
  /// Returns null for a parameter whose gradients are reduced without compression. The result must
  /// not depend on the rank.
  [[nodiscard]] virtual std::unique_ptr<CompressedGradient> make(
      const torch::Tensor& parameter) const = 0;
  /// Names the kind and its settings. The ranks compare this text, because all of them need the
  /// same compressor.
  [[nodiscard]] virtual std::string description() const = 0;
};

/// Sends the elements of largest magnitude on each rank, with error feedback (Aji & Heafield 2017,
/// "Sparse communication for distributed gradient descent"; Stich et al. 2018, "Sparsified SGD with
/// memory"). `ratio`, in (0, 1], is the share of the elements that is sent; at least one is sent.
/// Parameters of fewer than `min_count` elements, and complex ones, are reduced without
/// compression.
[[nodiscard]] std::shared_ptr<const GradientCompressor> top_k(double ratio,
                                                              std::int64_t min_count = 1024);

/// Sends a matrix of low rank, with error feedback (Vogels, Karimireddy & Jaggi 2019, "PowerSGD",
/// algorithms 1 and 2, with a warm start). A gradient with more than two dimensions is a matrix
/// whose rows are its first dimension. `rank` is positive. Vectors, complex parameters, and
/// matrices that would not become smaller, are reduced without compression.
[[nodiscard]] std::shared_ptr<const GradientCompressor> power_sgd(int rank, std::uint64_t seed = 1);

}  // namespace hvd
