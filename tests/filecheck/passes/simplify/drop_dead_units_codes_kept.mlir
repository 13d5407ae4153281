// RUN: xdsl-opt %s -p pebble-drop-dead-units,pebble-merge-equal-units --split-input-file | filecheck %s

// Multipliers differ; what an activation rounds is no exact code; merged weights would pass 255.
// CHECK-LABEL: @multipliers
// CHECK: pebble.linear {{.*}} -> tensor<?x2x!pebble.codes<u8 scale 0.25 zero 3>>
func.func @multipliers(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  %w = pebble.constant dense<[[1.0, 1.0], [2.0, 2.0]]> : tensor<2x2xf32>
  %b = pebble.constant dense<[4.0, 4.0]> : tensor<2xf32>
  %m = pebble.constant dense<[0.5, 0.25]> : tensor<2xf32>
  %y_q = pebble.convert %x : (tensor<?x2xf32>) -> tensor<?x2x!pebble.codes<u8 scale 0.5 zero 128>>
  %y_0 = pebble.linear %y_q, %w bias %b times %m : tensor<2xf32> {pebble.node = "a"} : (tensor<?x2x!pebble.codes<u8 scale 0.5 zero 128>>, tensor<2x2xf32>, tensor<2xf32>) -> tensor<?x2x!pebble.codes<u8 scale 0.25 zero 3>>
  %y = pebble.linear %y_0, %w bias %b times %m : tensor<2xf32> {pebble.node = "b"} : (tensor<?x2x!pebble.codes<u8 scale 0.25 zero 3>>, tensor<2x2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}

// -----

// CHECK-LABEL: @activation
// CHECK: pebble.linear {{.*}} -> tensor<?x2x!pebble.codes<u8 scale 0.25 zero 3>>
func.func @activation(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  %w = pebble.constant dense<[[1.0, 0.0], [2.0, 0.0]]> : tensor<2x2xf32>
  %b = pebble.constant dense<[4.0, 5.0]> : tensor<2xf32>
  %v = pebble.constant dense<[[1.0, 2.0], [2.0, 5.0]]> : tensor<2x2xf32>
  %y_q = pebble.convert %x : (tensor<?x2xf32>) -> tensor<?x2x!pebble.codes<u8 scale 0.5 zero 128>>
  %y_0 = pebble.linear %y_q, %w bias %b times %b : tensor<2xf32> activation <tanh> {pebble.node = "a"} : (tensor<?x2x!pebble.codes<u8 scale 0.5 zero 128>>, tensor<2x2xf32>, tensor<2xf32>) -> tensor<?x2x!pebble.codes<u8 scale 0.25 zero 3>>
  %y = pebble.linear %y_0, %v bias %b times %b : tensor<2xf32> {pebble.node = "b"} : (tensor<?x2x!pebble.codes<u8 scale 0.25 zero 3>>, tensor<2x2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}

// -----

// CHECK-LABEL: @large
// CHECK: pebble.linear {{.*}} -> tensor<?x2x!pebble.codes<u8 scale 0.25 zero 3>>
func.func @large(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  %w = pebble.constant dense<[[1.0, 1.0], [2.0, 2.0]]> : tensor<2x2xf32>
  %b = pebble.constant dense<[4.0, 4.0]> : tensor<2xf32>
  %v = pebble.constant dense<[[200.0, 2.0], [56.0, 5.0]]> : tensor<2x2xf32>
  %y_q = pebble.convert %x : (tensor<?x2xf32>) -> tensor<?x2x!pebble.codes<u8 scale 0.5 zero 128>>
  %y_0 = pebble.linear %y_q, %w bias %b times %b : tensor<2xf32> {pebble.node = "a"} : (tensor<?x2x!pebble.codes<u8 scale 0.5 zero 128>>, tensor<2x2xf32>, tensor<2xf32>) -> tensor<?x2x!pebble.codes<u8 scale 0.25 zero 3>>
  %y = pebble.linear %y_0, %v bias %b times %b : tensor<2xf32> {pebble.node = "b"} : (tensor<?x2x!pebble.codes<u8 scale 0.25 zero 3>>, tensor<2x2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}
