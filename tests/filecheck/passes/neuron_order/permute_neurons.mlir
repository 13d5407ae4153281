// RUN: xdsl-opt %s -p pebble-permute-neurons{seed=2} | filecheck %s

// The hidden neurons change places: columns of %w, entries of %b and rows of %v alike. Those of %y keep theirs.
// CHECK-LABEL: @main
func.func @main(%x: tensor<?x1xf32>) -> tensor<?x2xf32> {
  // CHECK: %w = pebble.constant dense<{{.}}[3.000000e+00, 1.000000e+00, 2.000000e+00]]>
  %w = pebble.constant dense<[[1.0, 2.0, 3.0]]> : tensor<1x3xf32>
  // CHECK: %b = pebble.constant dense<[6.000000e+00, 4.000000e+00, 5.000000e+00]>
  %b = pebble.constant dense<[4.0, 5.0, 6.0]> : tensor<3xf32>
  // CHECK: %v = pebble.constant dense<{{.}}[3.000000e+01, 9.000000e+01], [1.000000e+01, 7.000000e+01], [2.000000e+01, 8.000000e+01]]>
  %v = pebble.constant dense<[[10.0, 70.0], [20.0, 80.0], [30.0, 90.0]]> : tensor<3x2xf32>
  %h = pebble.linear %x, %w bias %b : (tensor<?x1xf32>, tensor<1x3xf32>, tensor<3xf32>) -> tensor<?x3xf32>
  %y = pebble.linear %h, %v : (tensor<?x3xf32>, tensor<3x2xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}
