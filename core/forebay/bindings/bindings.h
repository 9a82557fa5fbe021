// SPDX-License-Identifier: Apache-2.0
// The parts that forebay._core is put together from.
#pragma once

#include <memory>
#include <string_view>

#include <nanobind/nanobind.h>

#include <forebay/reader.h>

namespace forebay::python {

void bind_addresses(nanobind::module_& module);
void bind_memory(nanobind::module_& module);
void bind_step(nanobind::module_& module);
void bind_reader(nanobind::module_& module);
void bind_writer(nanobind::module_& module);
void bind_admin(nanobind::module_& module);

/// The enumerator that is called `name`.
StepDistribution distribution_of(std::string_view name);

/// A step as an object of forebay._core, and back.
nanobind::object object_of(std::shared_ptr<const Step> step);
const Step& step_of(nanobind::handle object);

}  // namespace forebay::python
