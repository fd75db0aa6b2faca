#include "dataset.hpp"

#include <memory>
#include <stdexcept>
#include <vector>

#include <zlib.h>

namespace mnist {

namespace {

constexpr double kMean = 0.2860;  // the mean of Fashion-MNIST's training pixels, divided by 255
constexpr double kDeviation = 0.3530;

class GzipFile {
 public:
  explicit GzipFile(std::string path) : path_(std::move(path)), file_(gzopen(path_.c_str(), "rb")) {
    if (!file_) throw std::runtime_error("cannot open " + path_);
  }

  void read(void* into, std::size_t size) {
    const auto got = gzfread(into, 1, size, file_.get());
    if (got != size) throw std::runtime_error(path_ + " is cut short or damaged");
  }
  std::int64_t read_big_endian() {
    unsigned char bytes[4];
    read(bytes, sizeof bytes);
    return std::int64_t{bytes[0]} << 24 | bytes[1] << 16 | bytes[2] << 8 | bytes[3];
  }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  struct Close {
    void operator()(gzFile file) const { gzclose(file); }
  };
  std::string path_;
  std::unique_ptr<gzFile_s, Close> file_;
};

/// Reads an IDX file: two bytes of zero, the type (8 for bytes), the number of dimensions, their
/// sizes, and the values.
torch::Tensor read_idx(const std::string& path, std::int64_t dimensions, std::int64_t limit) {
  GzipFile file(path);
  if (file.read_big_endian() != (8 << 8 | dimensions)) {
    throw std::runtime_error(path + " is no IDX file of the expected kind");
  }
  std::vector<std::int64_t> shape;
  for (std::int64_t i = 0; i < dimensions; ++i) shape.push_back(file.read_big_endian());
  if (limit > 0) shape[0] = std::min(shape[0], limit);
  torch::Tensor values = torch::empty(shape, torch::kUInt8);
  file.read(values.data_ptr(), values.nbytes());
  return values;
}

}  // namespace

Dataset load(const std::string& folder, Split split, std::int64_t limit) {
  const std::string stem = folder + (split == Split::train ? "/train" : "/t10k");
  const torch::Tensor pixels = read_idx(stem + "-images-idx3-ubyte.gz", 3, limit);
  const torch::Tensor labels = read_idx(stem + "-labels-idx1-ubyte.gz", 1, limit);
  if (pixels.size(0) != labels.size(0)) {
    throw std::runtime_error(stem + ": as many labels as images are needed");
  }
  return {pixels.unsqueeze(1).to(torch::kFloat32).div_(255).sub_(kMean).div_(kDeviation),
          labels.to(torch::kInt64)};
}

}  // namespace mnist
