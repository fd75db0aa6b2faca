#include <array>
#include <span>

#include <hvd/hvd.hpp>
#include <hvd/torch/metric.hpp>

namespace hvd {

double average_metric(Context& context, double value, const std::string& name) {
  allreduce(context, std::span(&value, 1), {.name = name});
  return value;
}

double average_metric(double value, const std::string& name) {
  return average_metric(context(), value, name);
}

double Metric::average(Context& context) const {
  std::array<double, 2> sums{sum_, weight_};
  allreduce(context, std::span<double>(sums), {.name = name_, .op = ReduceOp::sum});
  return sums[0] / sums[1];
}

double Metric::average() const { return average(context()); }

}  // namespace hvd
