// RUN: xdsl-opt %s -p pebble-choose-kernels --verify-diagnostics | filecheck %s
// RUN: xdsl-opt %s -p 'pebble-choose-kernels{threshold=-1.0}' --verify-diagnostics | filecheck %s --check-prefix THRESHOLD

// CHECK: pebble-choose-kernels: the weight of node fc is no constant
// THRESHOLD: pebble-choose-kernels: threshold -1.0, expected 0 to 1
func.func @main(%x: tensor<?x4xf32>, %w: tensor<4x1xf32>) -> tensor<?x1xf32> {
  %y = pebble.linear %x, %w {pebble.node = "fc"} : (tensor<?x4xf32>, tensor<4x1xf32>) -> tensor<?x1xf32>
  func.return %y : tensor<?x1xf32>
}
