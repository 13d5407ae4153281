// RUN: xdsl-opt %s -p pebble-permute-neurons{seed=2} --split-input-file | filecheck %s

// Neurons that are returned keep their order, and so do inputs.
// CHECK-LABEL: @returned
func.func @returned(%x: tensor<?x3xf32>) -> tensor<?x3xf32> {
  // CHECK: %w = pebble.constant dense<{{.}}[1.000000e+00, 2.000000e+00, 3.000000e+00], [4.000000e+00, 5.000000e+00, 6.000000e+00], [7.000000e+00, 8.000000e+00, 9.000000e+00]]>
  %w = pebble.constant dense<[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]]> : tensor<3x3xf32>
  %y = pebble.linear %x, %w activation <relu> : (tensor<?x3xf32>, tensor<3x3xf32>) -> tensor<?x3xf32>
  func.return %y : tensor<?x3xf32>
}

// -----

// Hidden neurons that are added to inputs stand as the inputs do.
// CHECK-LABEL: @residual
func.func @residual(%x: tensor<?x3xf32>) -> tensor<?x2xf32> {
  // CHECK: %w = pebble.constant dense<{{.}}[1.000000e+00, 2.000000e+00, 3.000000e+00], [4.000000e+00, 5.000000e+00, 6.000000e+00], [7.000000e+00, 8.000000e+00, 9.000000e+00]]>
  %w = pebble.constant dense<[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]]> : tensor<3x3xf32>
  // CHECK: %v = pebble.constant dense<{{.}}[1.000000e+01, 7.000000e+01], [2.000000e+01, 8.000000e+01], [3.000000e+01, 9.000000e+01]]>
  %v = pebble.constant dense<[[10.0, 70.0], [20.0, 80.0], [30.0, 90.0]]> : tensor<3x2xf32>
  %h = pebble.linear %x, %w : (tensor<?x3xf32>, tensor<3x3xf32>) -> tensor<?x3xf32>
  %s = pebble.add %h, %x : (tensor<?x3xf32>, tensor<?x3xf32>) -> tensor<?x3xf32>
  %y = pebble.linear %s, %v : (tensor<?x3xf32>, tensor<3x2xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}
