// SPDX-License-Identifier: Apache-2.0
// What the engine's tests share: IOs that are set up for a stream of the test's own. The programs are run by
// test_adios2_engine.py, which starts a server, creates the reservation, and names both and the plugin in the
// environment.
#pragma once

#include <cstdlib>
#include <functional>
#include <string>

#include <adios2.h>
#include <gtest/gtest.h>

namespace forebay::engine_test {

inline std::string from_environment(const char* variable) {
  const char* value = std::getenv(variable);
  return value == nullptr ? "" : value;
}

class EngineTest : public ::testing::Test {
 protected:
  /// An IO whose engines open `stream`, by default the test's own.
  adios2::IO make_io(const std::string& name, const adios2::Params& parameters = {}, std::string stream = {}) {
    adios2::IO io = adios_.DeclareIO(name);
    if (stream.empty()) stream = stream_;
    configure(io, stream);
    for (const auto& [key, value] : parameters) io.SetParameter(key, value);
    return io;
  }

  static void configure(adios2::IO io, const std::string& stream) {
    io.SetEngine("Plugin");
    io.SetParameter("PluginName", "forebay");
    io.SetParameter("PluginLibrary", from_environment("FOREBAY_ADIOS2_LIBRARY"));
    io.SetParameter("Stream", stream);
  }

  void SetUp() override {
    const std::string reservation = from_environment("FOREBAY_TEST_RESERVATION");
    if (reservation.empty()) GTEST_SKIP() << "run by test_adios2_engine.py";
    const ::testing::TestInfo& test = *::testing::UnitTest::GetInstance()->current_test_info();
    // Short enough for a name, and different for every test.
    std::string name =
        std::string(test.name()).substr(0, 40) + "." +
        std::to_string(std::hash<std::string>{}(std::string(test.test_suite_name()) + test.name()) % 100'000);
    stream_ = reservation + "/" + name;
  }

  std::string stream_;
  adios2::ADIOS adios_;
};

/// Whether calling `function` throws `Exception` with a text that has `part` in it.
template <class Exception, class Function>
::testing::AssertionResult throws(Function&& function, const std::string& part) {
  try {
    function();
  } catch (const Exception& error) {
    if (std::string(error.what()).find(part) != std::string::npos) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << "the text was: " << error.what();
  } catch (const std::exception& error) {
    return ::testing::AssertionFailure() << "another exception: " << error.what();
  }
  return ::testing::AssertionFailure() << "nothing was thrown";
}

}  // namespace forebay::engine_test
