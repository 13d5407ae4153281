// RUN: xdsl-opt %s -p 'pebble-split-components{least_gain=0.0}' --split-input-file | filecheck %s

// All neurons hang together.
// CHECK-LABEL: @together
func.func @together(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  // CHECK-NOT: grouped_layers
  %w = pebble.constant dense<[[1.0, 2.0], [0.0, 3.0]]> : tensor<2x2xf32>
  %y = pebble.linear %x, %w : (tensor<?x2xf32>, tensor<2x2xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}

// -----

// NaN times a weight of zero is NaN.
// CHECK-LABEL: @nan
func.func @nan(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  // CHECK-NOT: grouped_layers
  %b = pebble.constant dense<"0x0000C07F0000C07F"> : tensor<2xf32>
  %w = pebble.constant dense<[[1.0, 0.0], [0.0, 3.0]]> : tensor<2x2xf32>
  %s = pebble.add %x, %b : (tensor<?x2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  %y = pebble.linear %s, %w : (tensor<?x2xf32>, tensor<2x2xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}

// -----

// The number of rows is a product of two unknown sizes, which nothing would tell apart again.
// CHECK-LABEL: @unknown_axes
func.func @unknown_axes(%x: tensor<?x?x2xf32>) -> tensor<?x?x2xf32> {
  // CHECK-NOT: grouped_layers
  %w = pebble.constant dense<[[1.0, 0.0], [0.0, 3.0]]> : tensor<2x2xf32>
  %y = pebble.linear %x, %w : (tensor<?x?x2xf32>, tensor<2x2xf32>) -> tensor<?x?x2xf32>
  func.return %y : tensor<?x?x2xf32>
}
