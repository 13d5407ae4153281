// RUN: xdsl-opt %s -p pebble-flatten-network,pebble-schedule-wavefronts{block=1} | filecheck %s

// Two chains beside each other: one runs to its end before the other one begins, and gives it its slots.
// CHECK-LABEL: @main
func.func @main(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  %w = pebble.constant dense<[[1.0, 0.0], [0.0, 1.0]]> : tensor<2x2xf32>
  %v = pebble.constant dense<[[2.0, 0.0], [0.0, 2.0]]> : tensor<2x2xf32>
  // CHECK: wavefront <runs dense<[0, 1, 2, 3]> : tensor<4xi64>, order dense<[{{2, 4, 3, 5|3, 5, 2, 4}}]> : tensor<4xi64>, slots dense<[{{[0-2], [0-2], [0-2], [0-2], [0-2], [0-2]}}]> : tensor<6xi64>>
  %h = pebble.linear %x, %w activation <relu> : (tensor<?x2xf32>, tensor<2x2xf32>) -> tensor<?x2xf32>
  %y = pebble.linear %h, %v : (tensor<?x2xf32>, tensor<2x2xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}
