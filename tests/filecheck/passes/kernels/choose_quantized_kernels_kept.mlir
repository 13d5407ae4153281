// RUN: xdsl-opt %s -p pebble-choose-quantized-kernels --split-input-file | filecheck %s

// A layer of floats has kernels of its own.
// CHECK-LABEL: @floats
func.func @floats(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  %w = pebble.constant dense<[[1.0, 2.0], [0.0, 3.0]]> : tensor<2x2xf32>
  // CHECK: pebble.linear %x, %w : (tensor<?x2xf32>
  %y = pebble.linear %x, %w : (tensor<?x2xf32>, tensor<2x2xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}
