#include <iostream>

#include <hvd/spawn.hpp>

int main() {
  int sum = 0;
  for (const int square : hvd::spawn([](int rank) { return rank * rank; }, 3)) sum += square;
  std::cout << "sum " << sum << '\n';
}
