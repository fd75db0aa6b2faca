#include <iostream>

#include <hvd/core/version.hpp>

int main() { std::cout << "hvd " << hvd::version() << '\n'; }
