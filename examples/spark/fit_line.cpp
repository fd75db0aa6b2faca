// Fits a line to points, of which every rank has a share, without LibTorch. On Spark,
// returned_result.py runs it and gets the result. Alone or with hvdrun it only prints.
//
//   fit_line [steps]
//   hvdrun -np 4 fit_line [steps]
#include <array>
#include <cstdio>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <hvd/hvd.hpp>
#include <hvd/spark.hpp>

namespace {

struct Point {
  double x = 0;
  double y = 0;
};

/// Returns this rank's share, which is points around y = 3 x + 1.
std::vector<Point> make_points(int rank) {
  std::mt19937_64 random(static_cast<std::uint64_t>(rank) + 1);
  std::uniform_real_distribution<double> place(-1, 1);
  std::normal_distribution<double> noise(0, 0.1);
  std::vector<Point> points(1000);
  for (Point& point : points) {
    point.x = place(random);
    point.y = 3 * point.x + 1 + noise(random);
  }
  return points;
}

}  // namespace

int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::stoi(argv[1]) : 100;
  constexpr double kRate = 0.5;
  hvd::init();
  const std::vector<Point> points = make_points(hvd::rank());

  double slope = 0;
  double intercept = 0;
  for (int step = 0; step < steps; ++step) {
    std::array<double, 3> sums{};  // two for the gradient and one for the loss
    for (const Point& point : points) {
      const double error = slope * point.x + intercept - point.y;
      sums[0] += error * point.x;
      sums[1] += error;
      sums[2] += error * error;
    }
    hvd::AllreduceOptions average;
    average.op = hvd::ReduceOp::average;
    hvd::allreduce(std::span<double>(sums), average);
    const auto count = static_cast<double>(points.size());
    slope -= kRate * sums[0] / count;
    intercept -= kRate * sums[1] / count;
    if (hvd::rank() == 0 && step % 20 == 0) {
      std::printf("step %d loss %.4f\n", step, sums[2] / count);
    }
  }

  if (hvd::rank() == 0) {
    std::printf("y = %.3f x + %.3f\n", slope, intercept);
    hvd::set_result("{\"slope\": " + std::to_string(slope) +
                    ", \"intercept\": " + std::to_string(intercept) + "}");
  }
  hvd::shutdown();
}
