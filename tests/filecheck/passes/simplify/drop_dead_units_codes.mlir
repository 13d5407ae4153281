// RUN: xdsl-opt %s -p pebble-drop-dead-units,pebble-merge-equal-units --split-input-file | filecheck %s

// Nothing reads neuron 0, neuron 1 has the code of its bias (8 * 0.5 / 0.25, less the zero), 2 and 3 have equal codes.
// CHECK-LABEL: @neurons
func.func @neurons(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  %w = pebble.constant dense<[[1.0, 0.0, 3.0, 3.0], [2.0, 0.0, 5.0, 5.0]]> : tensor<2x4xf32>
  %b = pebble.constant dense<[4.0, 8.0, 6.0, 6.0]> : tensor<4xf32>
  %m = pebble.constant dense<[0.5, 0.5, 0.25, 0.25]> : tensor<4xf32>
  %v = pebble.constant dense<[[0.0, 0.0], [2.0, -3.0], [1.0, 4.0], [10.0, 20.0]]> : tensor<4x2xf32>
  %c = pebble.constant dense<[1.0, 2.0]> : tensor<2xf32>
  // CHECK-DAG: dense<[[3.000000e+00], [5.000000e+00]]> : tensor<2x1xf32>
  // CHECK-DAG: dense<6.000000e+00> : tensor<1xf32>
  // CHECK-DAG: dense<2.500000e-01> : tensor<1xf32>
  // CHECK-DAG: dense<[[1.100000e+01, 2.400000e+01]]> : tensor<1x2xf32>
  // CHECK-DAG: dense<[3.300000e+01, -4.600000e+01]> : tensor<2xf32>
  // CHECK-DAG: %[[H:.*]] = pebble.linear %y_q, %w bias %b times %m : tensor<1xf32> activation <relu> {{.*}} -> tensor<?x1x!pebble.codes<u8 scale 0.25 zero 3>>
  // CHECK: pebble.linear %[[H]], %v {{.*}} -> tensor<?x2xf32>
  %y_q = pebble.convert %x : (tensor<?x2xf32>) -> tensor<?x2x!pebble.codes<u8 scale 0.5 zero 128>>
  %y_0 = pebble.linear %y_q, %w bias %b times %m : tensor<4xf32> activation <relu> {pebble.node = "a"} : (tensor<?x2x!pebble.codes<u8 scale 0.5 zero 128>>, tensor<2x4xf32>, tensor<4xf32>) -> tensor<?x4x!pebble.codes<u8 scale 0.25 zero 3>>
  %y = pebble.linear %y_0, %v bias %c times %c : tensor<2xf32> {pebble.node = "b"} : (tensor<?x4x!pebble.codes<u8 scale 0.25 zero 3>>, tensor<4x2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}

// -----

// A neuron that saturates has the greatest code; the only one left stays.
// CHECK-LABEL: @constants
func.func @constants(%x: tensor<?x2xf32>) -> tensor<?x1xf32> {
  %w = pebble.constant dense<0.0> : tensor<2x3xf32>
  %b = pebble.constant dense<[4.0, 9000.0, -9000.0]> : tensor<3xf32>
  %m = pebble.constant dense<[0.5, 0.75, 1.0]> : tensor<3xf32>
  %v = pebble.constant dense<[[2.0], [1.0], [3.0]]> : tensor<3x1xf32>
  %c = pebble.constant dense<1.0> : tensor<1xf32>
  // CHECK-DAG: dense<-2.600000e+02> : tensor<1xf32>
  // CHECK: pebble.linear {{.*}}, tensor<1x1xf32>, tensor<1xf32>) -> tensor<?x1xf32>
  %y_q = pebble.convert %x : (tensor<?x2xf32>) -> tensor<?x2x!pebble.codes<u8 scale 0.5 zero 128>>
  %y_0 = pebble.linear %y_q, %w bias %b times %m : tensor<3xf32> {pebble.node = "a"} : (tensor<?x2x!pebble.codes<u8 scale 0.5 zero 128>>, tensor<2x3xf32>, tensor<3xf32>) -> tensor<?x3x!pebble.codes<s8 scale 0.25 zero 1>>
  %y = pebble.linear %y_0, %v bias %c times %c : tensor<1xf32> {pebble.node = "b"} : (tensor<?x3x!pebble.codes<s8 scale 0.25 zero 1>>, tensor<3x1xf32>, tensor<1xf32>) -> tensor<?x1xf32>
  func.return %y : tensor<?x1xf32>
}
