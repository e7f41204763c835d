// SPDX-License-Identifier: Apache-2.0
#include "convert/random_word.h"

#include <fmt/format.h>

#include <random>

namespace crossdock::convert {

std::string RandomWord() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}", device(), device());
}

}  // namespace crossdock::convert
