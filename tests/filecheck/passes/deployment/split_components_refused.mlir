// RUN: xdsl-opt %s -p 'pebble-split-components{least_gain=-1.0}' --verify-diagnostics | filecheck %s

// CHECK: pebble-split-components: expected a least gain of 0 or more, got -1.0
func.func @main(%x: tensor<?x1xf32>) -> tensor<?x1xf32> {
  func.return %x : tensor<?x1xf32>
}
