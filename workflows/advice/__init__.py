# SPDX-License-Identifier: Apache-2.0
"""`forebay advise`: what a run's input and output cost, what to do about it, and the lines that do it."""
